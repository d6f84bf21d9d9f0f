package dev.edgedec.demo

import android.content.ComponentName
import android.content.Context
import android.content.Intent
import android.content.ServiceConnection
import android.os.IBinder

/**
 * Binds the service for the presenter while the app is seen.
 *
 * It belongs to the application, not to an activity: when the phone is turned, both stay bound.
 */
class Connection(private val context: Context, private val presenter: Presenter) : ServiceConnection {
    private var bound = false

    fun bind() {
        if (bound) return
        bound = context.bindService(Intent(context, DecodingService::class.java), this, Context.BIND_AUTO_CREATE)
    }

    fun unbind() {
        if (!bound) return
        bound = false
        presenter.detach()
        context.unbindService(this)
    }

    override fun onServiceConnected(name: ComponentName?, service: IBinder?) {
        if (bound && service is DecodingService.Local) presenter.attach(service)
    }

    override fun onServiceDisconnected(name: ComponentName?) = presenter.detach()
}
